"""The parts that are best kept as in the first model, for a number of bytes."""

from collections.abc import Iterable, Mapping

import numpy as np

from headscan.comparison.exchange import Divergences, Exchange, ExchangeWindows, sweep
from headscan.run import BadInput, Row, Run
from headscan.statistics.uncertainty import Cells, Floats

RANDOM_CHOICES = 8
"""Random choices of as many bytes, whose mean is compared with the greedy choice."""

RANDOM = "random"


class Keeping:
    """Chooses parts to keep as in the first model, greedily by the gain for their bytes.

    Attributes:
        gains: the mean divergences [6] that keeping each part gives back.
        total: the mean divergences [6] of the second model.
        budget: bytes.
        costs: the bytes that keeping each part costs.
    """

    def __init__(
        self,
        exchange: Exchange,
        gains: Mapping[int, Floats],
        total: Floats,
        budget: float,
        run: Run,
    ) -> None:
        self.exchange = exchange
        self.gains = gains
        self.total = total
        self.budget = budget
        self.run = run
        self.costs = {number: self._cost(part) for number, part in exchange.changed.items()}

    def _cost(self, part: str) -> int:
        """Return the bytes of a part beyond the second model's, or all of them."""
        first, second = self.exchange.models
        extra = first.bytes[part] - second.bytes[part]
        return extra if extra > 0 else first.bytes[part]

    def rows(self, windows: ExchangeWindows) -> list[Row]:
        """Return a row for each choice: none, greedy, uniform and random, of as many bytes.

        They are measured on windows that the greedy choice was not made by.
        """
        choices = self._choices()
        paths = [self.exchange.keeping(numbers) for numbers in choices.values()]
        windows.paths = list(dict.fromkeys([self.exchange.first, *paths]))
        [divergences], _ = sweep(self.exchange.models, [windows], self.run, "choices", lambda _: {})
        tables = {}
        random_tables = []
        for name, numbers in choices.items():
            table = divergences[self.exchange.keeping(numbers)].table
            if name.startswith(RANDOM):
                random_tables.append(table)
            else:
                tables[name] = table
        tables[RANDOM] = np.mean(random_tables, axis=0)
        choices[RANDOM] = choices[f"{RANDOM} 0"]
        return [
            self._row(name, choices[name], windows, table, tables["greedy"])
            for name, table in tables.items()
        ]

    def _choices(self) -> dict[str, list[int]]:
        """Return the numbers of the kept parts by the name of the choice."""
        parts = list(self.exchange.changed)
        helping = [number for number in parts if self.gains[number][0] > 0]
        helping.sort(key=lambda number: -self.gains[number][0] / self.costs[number])
        greedy = self._filled(helping, self.budget)
        if not greedy:
            raise BadInput(
                f"--keep {self.budget:g} bytes hold no part that helps: the smallest takes "
                f"{min(self.costs.values()):,}."
            )
        spent = sum(self.costs[number] for number in greedy)
        evenly_spaced = []
        for step in range(len(greedy)):
            position = int((step + 0.5) * len(parts) / len(greedy))
            evenly_spaced.append(parts[position])
        uniform = dict.fromkeys([*evenly_spaced, *parts])
        choices = {
            "none": [],
            "greedy": greedy,
            "uniform": self._filled(uniform, spent),
        }
        generator = np.random.default_rng([self.run.seed, 1])
        for draw in range(RANDOM_CHOICES):
            order = generator.permutation(parts).tolist()
            choices[f"{RANDOM} {draw}"] = self._filled(order, spent)
        return choices

    def _filled(self, order: Iterable[int], budget: float) -> list[int]:
        """Return the parts that fit into a budget of bytes, taken in this order."""
        kept = []
        spent = 0
        for number in order:
            if spent + self.costs[number] <= budget:
                kept.append(number)
                spent += self.costs[number]
        return kept

    def _row(
        self,
        name: str,
        numbers: list[int],
        windows: ExchangeWindows,
        table: Floats,
        greedy_table: Floats,
    ) -> Row:
        """Return the divergences of a choice, and how much more they are than the greedy one's."""
        parts = self.exchange.changed
        cells: Cells = {
            "choice": name,
            "kept": [parts[number] for number in sorted(numbers)],
            "bytes": sum(self.costs[number] for number in numbers),
        }
        cells |= windows.means(Divergences(table).columns())
        more = table - greedy_table
        cells |= windows.means({"more_kl": more[:, 0], "more_loss": more[:, 2]})
        if name != RANDOM:
            predicted = self.total - sum(self.gains[number] for number in numbers)
            cells["predicted_kl"] = float(predicted[0])
            cells["predicted_loss_change"] = float(predicted[2])
        return Row(cells)
