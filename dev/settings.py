"""Writes the table of queue settings into docs/settings.md, from the one in `skep.model.queue_settings`.

`python dev/settings.py` writes it; `tests/docs/test_queue_settings.py` fails when somebody forgot to.
"""

from pathlib import Path

from skep.model.queue_settings import SETTINGS, Ordering, Setting, SettingKind

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = "| setting | default | range | in a spec | meaning | change it when |\n|---|---|---|---|---|---|\n"
_DAY_SECONDS, _YEAR_SECONDS = 86_400, 365 * 86_400


def table() -> str:
    """The table in Markdown."""
    return HEAD + "".join(_row(setting) for setting in SETTINGS.values())


def with_table(page: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(HEAD.partition("\n")[0])
    rows, blank, after = rest.partition("\n\n")
    assert rows, "the head of the table is not on the page: change it there, too"
    return before + table().removesuffix("\n") + blank + after


def _row(setting: Setting) -> str:
    meaning = f"{setting.help_text} {setting.detail}".strip().replace("NAME.dead", "`NAME.dead`")
    place = "not there" if setting.block is None else f"`{setting.block}`"
    cells = (f"`{setting.name}`", _default(setting), _range(setting), place, meaning, setting.change_when)
    return f"| {' | '.join(cells)} |\n"


def _default(setting: Setting) -> str:
    match setting.kind:
        case SettingKind.NAME:
            return "none"
        case SettingKind.SWITCH:
            return "on" if setting.default else "off"
        case SettingKind.ORDERING:
            return f"`{setting.default}`"
        case SettingKind.WHOLE | SettingKind.SECONDS:
            return f"{setting.default:.0f}"


def _range(setting: Setting) -> str:
    match setting.kind:
        case SettingKind.NAME:
            return "a name"
        case SettingKind.SWITCH:
            return "on, off"
        case SettingKind.ORDERING:
            return ", ".join(f"`{one}`" for one in Ordering)
        case SettingKind.WHOLE | SettingKind.SECONDS:
            least = "above 0," if setting.above_zero else f"{setting.least:,}"
            return f"{least} to {_most(setting)}"


def _most(setting: Setting) -> str:
    seconds = (
        setting.most
        if setting.kind is SettingKind.SECONDS
        else setting.most / 1000
        if setting.name.endswith("_ms")
        else 0
    )
    if not seconds:
        return f"{setting.most:,}"
    return f"{seconds / _YEAR_SECONDS:.0f} years" if seconds >= _YEAR_SECONDS else f"{seconds / _DAY_SECONDS:.0f} days"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
