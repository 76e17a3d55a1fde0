"""Help, suggestions and errors of the command line."""

from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.cli.image_flags import given_chain
from app.cli.parser import COMMANDS, run
from models.exit_codes import ExitCode
from models.settings import SECTIONS, Settings


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the help that a command prints."""
    with pytest.raises(SystemExit) as ended:
        run(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what a command line that cannot work is answered on standard error."""
    try:
        code = run(words)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == ExitCode.WRONG_USAGE
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_help_lists_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--help")
    for name, entry in COMMANDS.items():
        assert f"  {name:12}{entry.summary}\n" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_examples_of_that_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, name, "--help")
    examples = text[text.index("examples:") :]
    assert f"darkroom {name}" in examples
    assert text.startswith(f"usage: darkroom {name} [flags]")


def test_help_of_serve_groups_all_settings_with_their_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, "serve", "--help")
    places = [text.index(f"\n{title}:\n") for title in SECTIONS.values()]
    assert places == sorted(places)
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in text
    assert text.count("(default:") == len(Settings.model_fields)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serv"], "no command 'serv'; did you mean 'serve'?"),
        (["serve", "--prot", "1"], "there is no flag --prot; did you mean --port?"),
        (["filter", "a.png", "--forcee"], "did you mean --force?"),
        (["weights", "--cache-fodler", "x"], "did you mean --cache-folder?"),
        (["filter", "--format", "jpg", "a"], "no choice 'jpg'; did you mean 'jpeg'?"),
        (["filters", "gausian_blur"], "did you mean 'gaussian_blur'?"),
        (["weights", "fetch", "resnet5"], "did you mean 'resnet50'?"),
        (["completion", "bsh"], "did you mean 'bash'?"),
        (["weights", "list", "b", "c"], "arguments: c\n`darkroom weights --help` shows what"),
    ],
)
def test_the_name_that_was_probably_meant_is_suggested_or_the_help_of_the_command(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *words)


def test_an_unknown_setting_of_the_environment_is_corrected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DARKROOM_PROT", "1")
    assert "unknown setting DARKROOM_PROT; did you mean 'DARKROOM_PORT'?" in refused(
        capsys, "serve"
    )


def test_a_wrong_value_is_named_by_where_it_was_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DARKROOM_GRACE", "-1")
    error = refused(capsys, "serve", "--port", "x")
    assert "darkroom: --port: " in error
    assert "darkroom: DARKROOM_GRACE: " in error


def test_a_file_for_output_points_to_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jpg").touch()
    words = ["classify", str(tmp_path / "a.jpg"), "--output", "labels.csv"]
    assert run(words) == ExitCode.WRONG_USAGE
    assert "did you mean --out labels.csv?" in capsys.readouterr().err


JSON = '[{"name": "gaussian_blur", "sigma": 2}, {"name": "sepia"}]'


@pytest.mark.parametrize(
    ("ops", "op"),
    [
        (JSON, []),
        ("gaussian_blur:sigma=2,sepia", []),
        (None, ["gaussian_blur:sigma=2", "sepia"]),
        (None, ["gaussian_blur:sigma=2,sepia"]),
    ],
)
def test_all_spellings_make_the_same_chain(ops: str | None, op: list[str]) -> None:
    assert given_chain(ops, op) == given_chain(JSON, [])


@pytest.mark.parametrize(
    ("ops", "op", "messages"),
    [
        (
            None,
            ["sepia", "gaussian_blur:sigma=-3"],
            ["--op: gaussian_blur: sigma: a number from 0.1 to 100 px is needed, not -3"],
        ),
        (
            "gaussian_blur:sigm=3,median:size=4",
            [],
            [
                "--ops: gaussian_blur: sigm: unknown parameter; did you mean 'sigma'?",
                "--ops: median: size: an odd whole number from 3 to 101 px is needed, not 4",
            ],
        ),
        ("sepai", [], ["--ops: no filter 'sepai'; did you mean 'sepia'?"]),
        (None, ["sigma=2"], ["--op: a filter is needed before the parameter 'sigma=2'"]),
        ("[{", [], ["--ops: it begins as JSON, but is none"]),
        ("{}", [], ["--ops: a list of 1 to 32 filters is needed"]),
        ("[3]", [], ['--ops: an object with a "name" is needed']),
    ],
)
def test_errors_name_the_flag_the_filter_the_parameter_and_what_is_allowed(
    ops: str | None, op: list[str], messages: list[str]
) -> None:
    with pytest.raises(WrongUsage) as raised:
        given_chain(ops, op)
    for message in messages:
        assert message in str(raised.value)
