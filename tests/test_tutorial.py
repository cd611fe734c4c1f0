"""The tutorial's listings do what the page says."""

from __future__ import annotations

from pathlib import Path

from docs.run_tutorial import HERE, PAGE, build


def test_outputs_and_pictures_are_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    page, pictures = build(text)
    assert page == text, "python docs/run_tutorial.py rewrites the page"
    for name, picture in pictures.items():
        assert Path(HERE / name).read_text(encoding="utf-8") == picture
