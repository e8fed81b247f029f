import {h, problem} from "./dom.js";
import {t} from "./texts.js";

/** Returns an element that explains the error. A rejected token also ends the session. */
export function explain(error) {
  if (error.status === 401) {
    dispatchEvent(new Event("longwire-signed-out"));
    return problem(t("signedOut"));
  }
  if (error.status === 403) {
    const lack = /^credential (.+) lacks the permission (\w+)$/.exec(error.message);
    return problem(t("forbidden", lack ? t("lacks", lack[1], lack[2]) : error.message));
  }
  if (error.status === 0) return problem(t("noAnswer"));
  if (error.status === undefined) throw error;
  return problem(t("refused", `${error.message || error.status} (${error.code})`));
}

/** Asks for confirmation of an action that cannot be undone automatically. Returns a promise of true or false. */
export function confirm(sentence) {
  return new Promise(resolve => {
    const dialog = h("dialog", {"aria-label": sentence},
      h("p", {}, sentence),
      h("div", {class: "buttons"},
        h("button", {onclick: () => dialog.close("no")}, t("cancel")),
        h("button", {class: "danger", onclick: () => dialog.close("yes")}, t("yes"))));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
