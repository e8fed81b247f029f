// The apps that this credential sees, for forms.

import {call} from "./api.js";
import {h} from "./dom.js";

/** A list to choose from; `chosen` is an appId. */
export async function appChoice(chosen) {
  const {apps} = await call("/v1/apps");
  return h("select", {}, apps.map(({appId}) => h("option", {value: appId, selected: appId === chosen}, appId)));
}
