"""The tournament: arms of training side by side, compared where their losses are equal.

- `variants`: the arms; `optimisers`, `regularisers`: what they train with
- `plan`: the sizes of a tournament; `race`: one run; `moment`: what is measured on the way;
  `workers`: runs in several processes
- `reading`: numbers of one race; `differences`: an arm beside its reference, in numbers and in a
  sentence; `table`: rows and the result; `outcome`: all tables of a tournament
- `run`: the verb `headscan tournament`
"""
