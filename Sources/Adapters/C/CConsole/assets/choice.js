import {call} from "./api.js";
import {h} from "./dom.js";

/** Returns a list of the apps visible to this credential. `chosen` is an appId, by default the first enabled app. */
export async function appChoice(chosen) {
  const {apps} = await call("/v1/apps");
  const first = chosen ?? apps.find(({state}) => state === "enabled")?.appId;
  return h("select", {}, apps.map(({appId}) => h("option", {value: appId, selected: appId === first}, appId)));
}
