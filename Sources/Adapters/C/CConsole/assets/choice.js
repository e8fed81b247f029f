import {call} from "./api.js";
import {card, field, fill, h} from "./dom.js";
import {explain} from "./faults.js";
import {t} from "./texts.js";

/** Returns a list of the apps visible to this credential. `chosen` is an appId, by default the first enabled app. */
export async function appChoice(chosen) {
  const {apps} = await call("/v1/apps");
  const first = chosen ?? apps.find(({state}) => state === "enabled")?.appId;
  return h("select", {}, apps.map(({appId}) => h("option", {value: appId, selected: appId === first}, appId)));
}

/**
 * Shows a page that looks up a name of an app: the form, and below it the result of `look`.
 *
 * `asked` is the app and the name in the page's address. `label`, `hint` and `properties` belong to the name's field, and `tidy`
 * normalizes the typed name. `look(found, isOver)` fills `found` unless the page was closed. `failed` converts its error to an
 * element.
 */
export function search(body, {page, asked: [app, name], label, hint, properties, tidy = text => text, look, failed = explain}) {
  const found = h("div", {"aria-live": "polite"});
  let isOver = false;
  (async () => {
    try {
      const apps = await appChoice(app);
      if (isOver) return;
      const input = h("input", {value: name ?? "", required: true, spellcheck: "false", autocomplete: "off", ...properties});
      fill(body, card(null, h("form", {class: "row", onsubmit: event => {
        event.preventDefault();
        location.hash = `#/${page}/${encodeURIComponent(apps.value)}/${encodeURIComponent(tidy(input.value.trim()))}`;
      }}, field(t("app"), apps), field(label, input, hint), h("button", {class: "main"}, t("ask")))), found);
      if (!name) return input.focus();
      fill(found, h("p", {class: "quiet"}, t("asking")));
      await look(found, () => isOver);
    } catch (error) {
      if (!isOver) fill(found.isConnected ? found : body, failed(error));
    }
  })();
  return () => { isOver = true; };
}
