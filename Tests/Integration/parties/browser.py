"""A headless Chromium, driven like a user through chromedriver and Selenium, both from Debian."""

import contextlib
import math
import tempfile

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

WAIT = 20


class Page:
    """The console of one gateway in its own window."""

    def __init__(self, driver, gateway):
        self.driver, self.gateway = driver, gateway

    def open(self, place=""):
        self.driver.get(f"http://127.0.0.1:{self.gateway.admin}/console{place}")

    def go(self, place):
        self.driver.execute_script("location.hash = arguments[0]", place)

    def find(self, selector):
        """Returns the first such element once it exists."""
        return self.until(lambda: next(iter(self.all(selector)), None), selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector="main"):
        return self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map(element => element.innerText).join('\\n')", selector)

    def shows(self, text, selector="main"):
        self.until(lambda: text in self.text(selector), lambda: f"{text!r} in {self.text(selector)!r}")

    def until(self, look, what):
        try:
            return WebDriverWait(self.driver, WAIT, poll_frequency=0.05).until(lambda _: look())
        except Exception:
            raise AssertionError(f"no {what() if callable(what) else what}") from None

    def click(self, selector):
        self.find(selector).click()

    def type(self, selector, text):
        element = self.find(selector)
        element.clear()
        element.send_keys(text)

    def search(self, name):
        """Looks a name up by keyboard, from wherever the page's focus is outside fields."""
        self.find("form.find")
        self.driver.execute_script("document.activeElement.blur()")
        self.driver.switch_to.active_element.send_keys("/")
        box = self.driver.switch_to.active_element
        assert box.get_attribute("id") == "find", "the key leads to the search box"
        box.send_keys(name, Keys.ENTER)

    def sign_in(self, token):
        self.type(".sign-in input", token)
        self.click(".sign-in button.main")

    def complaints(self):
        """Returns the errors in the browser's log: script errors and violations of the page's content policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if "the server responded" not in entry["message"] and not entry["message"].startswith("chrome://")]

    def screenshot(self, path):
        self.driver.save_screenshot(str(path))

    def prefer(self, dark):
        """Sets the colour scheme. Without motion no picture shows a transition between two schemes."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def picture(self, path, width, margin=24):
        """Saves the page at this width, down to the end of its content."""
        self.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 600, "deviceScaleFactor": 1, "mobile": False})
        height = self.driver.execute_script(
            "return Math.max(...[...document.querySelectorAll('main *')].map(one => one.getBoundingClientRect().bottom + scrollY))")
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": math.ceil(height) + margin, "deviceScaleFactor": 1, "mobile": False})
        self.screenshot(path)
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": False})


@contextlib.contextmanager
def browser(language="en-US", dark=False, width=1280, height=1000):
    """Runs a Chromium with a temporary profile."""
    with tempfile.TemporaryDirectory(prefix="longwire-browser-", ignore_cleanup_errors=True) as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        # No sandbox, because a container may forbid it. Only the gateway's own page is opened.
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--lang={language}",
                         f"--window-size={width},{height}", f"--user-data-dir={folder}", "--no-first-run",
                         "--disable-background-networking", "--disable-component-update", "--no-proxy-server",
                         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"):
            options.add_argument(argument)
        options.add_experimental_option("prefs", {"intl.accept_languages": language})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        try:
            Page(driver, None).prefer(dark)
            yield driver
        finally:
            driver.quit()
