import base64
import hashlib
import json
import re

from quantail.report.page import Markup, Plot, Sheet, fold, note, page, paragraph, plot, text

NASTY = """</script><script>alert("x")</script><img src=x onerror='y'>&"""


def test_text_of_the_user_never_becomes_markup():
    for made in (text(NASTY), paragraph(NASTY), note(NASTY, [NASTY]), fold(NASTY, NASTY)):
        assert "<script" not in made
        assert "<img" not in made
        assert "&lt;script&gt;" in made
    assert '"' not in text(NASTY)
    assert "'" not in text(NASTY)


def test_data_of_a_figure_cannot_leave_their_block():
    figure = json.dumps({"data": [{"name": NASTY}], "layout": {}})
    made = plot(
        Plot(
            name="equity",
            finding=NASTY,
            caption=NASTY,
            choice="Symbol",
            sheets=(Sheet(figure=figure, label=NASTY), Sheet(figure=figure, label="b")),
        )
    )
    block = re.search(r'<script type="application/json" id="equity-data">(.*?)</script>', made)
    assert block is not None
    assert json.loads(block.group(1))[0]["data"][0]["name"] == NASTY
    rest = made.replace(block.group(0), "")
    assert "<script" not in rest
    assert "<img" not in rest
    assert rest.count("<option") == 2


def test_a_single_drawing_offers_no_choice():
    sheet = Sheet(figure='{"data": [], "layout": {}}')
    made = plot(Plot(name="equity", finding="", caption="", sheets=(sheet,)))
    assert "<select" not in made


def test_only_the_scripts_of_the_page_may_run():
    content = page(
        title=NASTY, header=Markup(""), body=Markup(""), footer=Markup(""), with_figures=True
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', content)
    assert policy is not None
    allowed = set(re.findall(r"'sha256-([^']+)'", policy.group(1)))
    scripts = re.findall(r"<script>(.*?)</script>\n", content, flags=re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert len(scripts) == 2
    assert digests == allowed
    assert "default-src 'none'" in policy.group(1)
    assert "unsafe-inline' 'sha" not in policy.group(1)
    assert "<title>&lt;/script&gt;" in content


def test_a_page_without_figures_carries_no_script():
    content = page(
        title="a", header=Markup(""), body=Markup(""), footer=Markup(""), with_figures=False
    )
    assert "<script" not in content
    assert "script-src 'none'" in content
    assert len(content) < 20_000
