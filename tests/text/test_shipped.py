import pytest

from headscan.run.errors import BadInput
from headscan.text import documents, embedded_names
from headscan.text import source as shipped
from headscan.text.source import embedded


def test_names_stand_for_files(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    (tmp_path / "hens.txt").write_text("One.\n\nTwo.\n")
    assert embedded_names() == ("hens", "pydoc")
    assert embedded("hens") == tmp_path / "hens.txt"
    monkeypatch.chdir(tmp_path)
    assert [d.text() for d in documents("hens", documents="paragraphs")] == ["One.", "Two."]


@pytest.mark.parametrize("name", ["pydoc", "nothing", "../shipped", "*"])
def test_names_without_a_file(name):
    with pytest.raises(BadInput, match=r"there are: .*pydoc"):
        embedded(name)


def test_every_shipped_text_is_plain_paragraphs():
    for name in embedded_names():
        if name != "pydoc":
            text = embedded(name).read_text(encoding="utf-8")
            assert text.strip()
            assert "\n\n\n" not in text
            assert "<|" not in text
            assert len(list(documents(name, documents="paragraphs"))) > 1


def test_the_help_of_python_is_a_text():
    [text] = [document.text() for document in documents("pydoc")]
    assert "lambda" in text
    assert "\n\n" in text
