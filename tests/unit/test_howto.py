"""What the how-to pages show is what is there."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_on_own_policies_shows_the_example_whole() -> None:
    page = (ROOT / "docs" / "how-to" / "own-policy.md").read_text()
    assert f"```python\n{(ROOT / 'examples' / 'own_policy.py').read_text()}```" in page
