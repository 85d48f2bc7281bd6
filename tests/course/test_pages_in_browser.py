"""The pages of a lab and of a class in Chromium."""

import dataclasses

import pytest
from browsing import eventually, visit
from lab_builders import laptop, with_operations
from lab_runs import predict, whole_lab

from mnistbench import cli
from mnistbench.course.classroom import submission
from mnistbench.course.lab.command import write_report

pytestmark = pytest.mark.usefixtures("matplotlib")


@pytest.fixture(scope="module")
def lab_page(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lab")
    write_report(directory, laptop(), "en")
    return directory / "report.html"


@pytest.fixture(scope="module")
def class_page(tmp_path_factory):
    """The page of two students, of whom one has predictions alone."""
    folder = tmp_path_factory.mktemp("class")
    labs = [whole_lab(folder / "s001", "s001"), folder / "s002"]
    predict(labs[1], "s002")
    (folder / "handed-in").mkdir()
    for lab in labs:
        submission.write(folder / "handed-in" / f"{lab.name}.json", submission.pack(lab))
    assert cli.main(["class", "merge", str(folder / "handed-in"), "-o", str(folder / "page")]) == 0
    return folder / "page" / "class.html"


@pytest.fixture
def opened(browser, request):
    """The page of the test's parameter, which asks for nothing and has no error."""
    yield from visit(browser, request.getfixturevalue(request.param).as_uri(), embeds=True)


@pytest.mark.parametrize("opened", ["lab_page", "class_page"], indirect=True)
def test_every_figure_is_drawn_and_every_link_of_the_contents_leads_to_its_section(opened):
    widths = opened.locator("figure img").evaluate_all("images => images.map(i => i.naturalWidth)")
    assert widths
    assert all(width > 100 for width in widths)
    links = opened.locator("nav a")
    headings = opened.locator("section h2")
    assert links.count() == headings.count() > 2
    for number in range(links.count()):
        links.nth(number).click()
        name = links.nth(number).text_content()
        eventually(opened.locator(":target h2")).to_contain_text(name)


@pytest.mark.parametrize("opened", ["lab_page"], indirect=True)
def test_a_cited_number_leads_to_its_row_in_the_sources(opened):
    number = opened.locator("a.cited").first
    text = number.text_content()
    number.click()
    eventually(opened.locator("tr:target")).to_contain_text(text)


@pytest.mark.parametrize("opened", ["class_page"], indirect=True)
def test_the_class_has_a_row_for_each_student(opened):
    students = opened.locator("#students table").first.locator("tbody tr")
    names = students.evaluate_all("rows => rows.map(row => row.cells[0].textContent)")
    assert sorted(names) == ["s001", "s002"]


@pytest.mark.parametrize("opened", ["class_page"], indirect=True)
def test_students_are_sorted_by_a_click_on_a_heading(opened):
    table = opened.locator("#students table").first
    heading = table.locator("th").first

    def names():
        return table.locator("tbody td:first-child").all_text_contents()

    heading.locator("button").click()
    assert (names(), heading.get_attribute("aria-sort")) == (["s001", "s002"], "ascending")
    heading.locator("button").click()
    assert (names(), heading.get_attribute("aria-sort")) == (["s002", "s001"], "descending")
    judged = table.locator("th", has_text="hits").locator("button")
    judged.click()
    judged.click()
    assert names() == ["s001", "s002"]  # s002 has no lab: what is missing is last in either way


@pytest.fixture(scope="module")
def wide_page(tmp_path_factory):
    """Four batch sizes, and names of operations as long as real ones."""
    findings = laptop()
    more = [
        dataclasses.replace(case, params=dataclasses.replace(case.params, batch_size=41))
        for case in findings.cases
        if case.params.batch_size == 16
    ]
    settings = dataclasses.replace(findings.settings, batch_sizes=(1, 16, 41, 64))
    findings = dataclasses.replace(findings, settings=settings, cases=(*findings.cases, *more))
    longest = "aten::max_pool2d_with_indices_backward"
    findings = with_operations(
        findings,
        lambda row, _: dataclasses.replace(row, name=longest) if "pool" in row.name else row,
    )
    directory = tmp_path_factory.mktemp("wide")
    write_report(directory, findings, "en")
    return directory / "report.html"


@pytest.mark.parametrize("opened", ["wide_page"], indirect=True)
def test_four_batch_sizes_fit_beside_one_another(opened):
    opened.set_viewport_size({"width": 1400, "height": 900})
    hidden = opened.locator(".scroll:has(caption:text('Operations:'))").evaluate_all(
        "parts => parts.map(part => part.scrollWidth - part.clientWidth)"
    )
    assert len(hidden) >= 2
    assert set(hidden) == {0}
