"""The web page of a result: complete, inert whatever a name holds, and rendered by a real browser."""

from __future__ import annotations

import base64
import html
import importlib
import os
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import privinf as pi
from privinf.accounting import gaussian_epsilon
from privinf.cli import main
from privinf.errors import ArgumentError, NotAvailableError
from privinf.results.page import page_of, trade_off

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LARGEST = 1_000_000
LINES_OF_NUMBERS = """
[...document.querySelectorAll("td:not(.text)")].filter(one => /^-?[0-9.e-]+$/.test(one.innerText)).map(one =>
{
  const range = document.createRange();
  range.selectNodeContents(one);
  return range.getClientRects().length;
})
"""
HOSTILE = "<script>window.hacked=1</script>"
NAMES = [HOSTILE, '"><img src=x onerror="window.hacked=2">', "a$_{b}$ & 'c' --><b>"]
ALLOWED = {
    "html",
    "head",
    "meta",
    "link",
    "title",
    "style",
    "body",
    "main",
    "h1",
    "h2",
    "p",
    "b",
    "dl",
    "div",
    "dt",
    "dd",
    "table",
    "tr",
    "th",
    "td",
    "span",
    "i",
    "figure",
    "figcaption",
    "img",
    "ol",
    "li",
    "details",
    "summary",
    "pre",
    "footer",
}


def fitted(names=("a", "b", "c"), model=pi.OLS, **spending):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1, 1, (3000, 3)), columns=list(names))
    y = pd.Series(X.to_numpy() @ [0.5, -0.3, 0.0] + 0.2 * rng.standard_normal(3000), name=names[0] + " y")
    spend = spending or {"epsilon": 2.0, "delta": 1e-6, "rng": 1}
    return model(y, pi.add_constant(X), bounds=dict.fromkeys(names, (-1, 1)), y_bounds=(-3, 3)).fit(**spend)


def weak():
    return fitted(model=pi.MomentOLS, epsilon=0.01, delta=1e-6, rng=0)


class Elements(HTMLParser):
    """The elements of a page, their attributes, and its texts."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.texts = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


def parsed(page):
    found = Elements()
    found.feed(page)
    return found


def pictures(page):
    return [
        base64.b64decode(code).decode() for code in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)
    ]


def test_the_page_holds_summary_plots_curve_and_ledger():
    result = fitted()
    page = page_of(result, 0.1)
    text = " ".join(" ".join(parsed(page).texts).split())
    for name in result.names:
        assert name in text
    for note in result.summary(alpha=0.1).plain_notes:
        assert " ".join(note.split()) in text
    for kind, _ in result.cautions:
        assert f"{kind}." in text
    for label in result.privacy.releases.label:
        assert label in text
    assert f"{result.params['a']:.4f}" in text
    assert f"{result.conf_int(0.1).loc['a', 0]:.4f}" in text
    assert f"{result.noise_share['a']:.0%}" in text
    assert "NOT PRIVATE" in text
    assert "Statement for a paper: there is no statement, because the releases are not all private" in text
    assert len(pictures(page)) == 2
    assert len(page) < LARGEST
    assert page == page_of(result, 0.1)


@pytest.mark.audit
def test_a_weak_fit_and_one_without_intervals_say_so():
    result = weak()
    assert result.estimate.cov is None
    page = page_of(result)
    assert "WeakIdentification." in page
    assert all(f"{name} (weak)" in page for name in result.weakly_identified.index)
    assert len(result.weakly_identified)
    quick = page_of(fitted(epsilon=0.01, delta=1e-6, intervals="optional", rng=0))
    assert "No plot:" in quick or "NoStandardErrors" not in quick


def test_nothing_of_a_hostile_name_is_markup():
    page = page_of(fitted(NAMES))
    found = parsed(page)
    assert found.tags <= ALLOWED
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    for name, value in found.attributes:
        if name in ("src", "href"):
            assert value.startswith("data:"), value
    assert html.escape(HOSTILE) in page
    assert HOSTILE not in page
    for picture in pictures(page):
        assert "<script" not in picture
        assert "onerror=" not in re.sub(r"<!--.*?-->", "", picture, flags=re.DOTALL)
    assert "default-src 'none'" in page


@pytest.mark.audit
def test_the_page_is_written_once(tmp_path):
    result = fitted()
    path = tmp_path / "out.html"
    result.report(path)
    assert path.read_text(encoding="utf-8") == page_of(result)
    with pytest.raises(ArgumentError, match="already exists"):
        result.report(path)
    result.report(path, alpha=0.2, overwrite=True)
    assert "[0.1" in path.read_text(encoding="utf-8")


@pytest.mark.audit
def test_the_command_writes_the_page_of_a_saved_result(tmp_path):
    result = fitted()
    result.save(tmp_path / "r.npz")
    words = ["report", str(tmp_path / "r.npz"), "--html", str(tmp_path / "r.html")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == page_of(pi.load_results(tmp_path / "r.npz"))
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 2
    assert "--overwrite" in again.output
    assert CliRunner().invoke(main, [*words, "--overwrite", "--alpha", "0.2"]).exit_code == 0
    assert CliRunner().invoke(main, [*words, "--overwrite", "--alpha", "2"]).exit_code == 2


def test_the_trade_off_curve_is_the_gaussian_one():
    """f(a) = Phi(Phi^-1(1 - a) - mu), from below: the grid gives away a little protection, and adds none."""
    from scipy.stats import norm

    result = fitted(mu=1.0, rng=0, model=pi.MomentOLS)
    alarms, missed = trade_off(result.privacy)
    exact = norm.cdf(norm.ppf(1.0 - alarms) - result.privacy.mu)
    assert (missed <= exact + 1e-9).all()
    np.testing.assert_allclose(missed, exact, atol=0.01)
    assert gaussian_epsilon(1.0, 1e-6) == pytest.approx(result.privacy.epsilon(1e-6))
    free = fitted(epsilon=np.inf)
    assert not trade_off(free.privacy)[1].any()
    assert "NOT PRIVATE" in page_of(free)


def test_without_matplotlib_the_reason_is_told(monkeypatch, tmp_path):
    import sys

    result = fitted()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotAvailableError, match=r"privinf\[plots\]"):
        result.report(tmp_path / "out.html")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium is installed (Debian's package chromium)")
    if "CI" in os.environ:  # there is a browser: what cannot drive it fails
        api = importlib.import_module("playwright.sync_api")
    else:
        api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as run:
        opened = run.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["strong", "weak", "hostile"])
def test_a_real_browser_renders_the_page(browser, kind, tmp_path):
    result = {"strong": fitted, "weak": weak, "hostile": lambda: fitted(NAMES)}[kind]()
    path = tmp_path / "page.html"
    result.report(path)
    assert path.stat().st_size < LARGEST
    page, told, asked = browser.new_page(viewport={"width": 1100, "height": 900}), [], []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri(), wait_until="load")
    assert told == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.scripts.length") == 0
    assert page.inner_text("h1").startswith(result.model.name)
    shown = page.inner_text("table >> nth=0")
    assert all(name in shown for name in result.names)
    widths = page.evaluate("[...document.images].map(one => one.naturalWidth)")
    assert len(widths) == 2
    assert all(width > 100 for width in widths)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert set(page.evaluate(LINES_OF_NUMBERS)) == {1}  # 4.93e-04 may not be cut at its hyphen
    page.close()


def luminance(colour):
    """Return the relative luminance of "rgb(r, g, b)", as the W3C defines it."""
    parts = np.array([float(one) for one in colour.split("(")[1].rstrip(")").split(",")[:3]]) / 255.0
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_readers_colours(browser, scheme, tmp_path):
    path = tmp_path / "page.html"
    fitted().report(path)
    page = browser.new_page(color_scheme=scheme)
    page.goto(path.as_uri(), wait_until="load")

    def colours(what):
        return [
            luminance(page.evaluate(f"getComputedStyle(document.querySelector('{place}')).{name}"))
            for place, name in what
        ]

    paper, wash = colours([("main", "backgroundColor"), ("body", "backgroundColor")])
    assert (paper < 0.05) is (wash < 0.05) is (scheme == "dark")
    on_paper = [
        (one, "color") for one in ("h1", "p.lead", "th", "td", ".rows", ".noise", "figcaption", "footer")
    ]
    alarm = colours([("p.alarm", "color"), ("p.alarm", "backgroundColor")])
    pairs = [*((one, paper) for one in colours(on_paper)), (colours([("dt", "color")])[0], wash), alarm]
    for one, other in pairs:
        high, low = max(one, other), min(one, other)
        assert (high + 0.05) / (low + 0.05) >= 4.5  # the W3C's contrast of texts
    pictures = page.evaluate("getComputedStyle(document.images[0]).filter")
    assert ("invert(1)" in pictures) is (scheme == "dark")  # drawn on nothing, black on the page's paper
    page.emulate_media(media="print", color_scheme=scheme)
    assert colours([("main", "backgroundColor")]) == [pytest.approx(1.0)]
    page.close()
