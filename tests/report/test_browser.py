"""The page in a real browser; skipped where there is none."""

import shutil

import pytest

selenium = pytest.importorskip("selenium", reason="selenium is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no Chromium with its chromedriver is installed"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def path(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "comparison.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(params=[1280, 1000, 400], ids=["wide", "usual", "narrow"])
def opened(request, browser, path):
    """The page in a window of some width: not less than a phone's."""
    metrics = {"width": request.param, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(path.as_uri())
    assert browser.execute_script("return window.innerWidth") == request.param
    return browser


def test_no_errors(opened):
    assert opened.get_log("browser") == []


def test_all_images_are_loaded_and_visible(opened):
    boxes = opened.execute_script(
        """return Array.from(document.images).map(image => {
             const box = image.getBoundingClientRect();
             return [image.complete, image.naturalWidth, box.width, box.height,
                     box.left, box.right, getComputedStyle(image).visibility];
           })"""
    )
    width = opened.execute_script("return document.documentElement.clientWidth")
    assert len(boxes) > 5
    for complete, natural, wide, high, left, right, visibility in boxes:
        assert complete
        assert natural > 0
        assert wide > 100
        assert high > 50
        assert left >= 0
        assert right <= width
        assert visibility == "visible"


def test_nothing_is_wider_than_the_window(opened):
    wide, window = opened.execute_script(
        "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
    )
    assert wide <= window


def test_tables_fit_a_window_of_1000_pixels(opened):
    """On a telephone they are moved sideways, each on its own."""
    hidden = opened.execute_script(
        "return Array.from(document.querySelectorAll('.wide')).map(e => e.scrollWidth - e.clientWidth)"
    )
    assert len(hidden) > 2
    if opened.execute_script("return window.innerWidth") >= 1000:
        assert max(hidden) <= 0


def test_images_keep_their_shape(opened):
    shapes = opened.execute_script(
        """return Array.from(document.images).map(
             i => [i.naturalWidth / i.naturalHeight, i.clientWidth / i.clientHeight])"""
    )
    for natural, shown in shapes:
        assert abs(shown / natural - 1.0) < 0.02


def test_links_lead_to_the_steps(opened):
    links = opened.find_elements("css selector", ".verdicts a")
    assert len(links) == 4
    links[2].click()
    assert opened.current_url.endswith("#step-3")


def test_dark_and_light_text_can_be_read(opened):
    """A contrast of at least 4.5 between text and page, as WCAG asks for."""
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        text, page = (
            opened.execute_script(f"return getComputedStyle(document.body).{what}")
            for what in ("color", "backgroundColor")
        )
        assert contrast(text, page) > 4.5, (scheme, text, page)
        for badge in opened.find_elements("css selector", ".badge"):
            assert contrast(badge.value_of_css_property("color"), page) > 4.5


def contrast(one, two):
    def luminance(colour):
        parts = [float(x) / 255 for x in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)
