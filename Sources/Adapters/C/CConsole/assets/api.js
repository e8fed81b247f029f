// Calls of the admin API with the token of this tab's session. The token is stored for the tab only and sent as a header, so that
// other sites cannot make the browser send it.

const KEY = "longwire.token";

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const token = () => sessionStorage.getItem(KEY);
export const signIn = value => sessionStorage.setItem(KEY, value);
export const signOut = () => sessionStorage.removeItem(KEY);

async function ask(path, {method = "GET", body} = {}) {
  const headers = {};
  if (token()) headers.authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
      signal: AbortSignal.timeout(15_000),
    });
  } catch {
    throw new Refused(0, "noAnswer", "");
  }
  return response;
}

/** Exchanges the code of a one-time link for the token; returns whether the code was valid. */
export async function enter(code) {
  const response = await fetch("/v1/sign-in", {
    method: "POST", headers: {authorization: `Bearer ${code}`}, cache: "no-store", signal: AbortSignal.timeout(15_000),
  });
  if (response.status === 401) return false;
  if (!response.ok) throw new Refused(response.status, "", (await response.json()).error.message);
  signIn((await response.json()).token);
  return true;
}

/** Returns the JSON of an answer and throws `Refused` for an error status. */
export async function call(path, options) {
  const response = await ask(path, options);
  const text = await response.text();
  let answer = null;
  try { answer = text ? JSON.parse(text) : null; } catch { answer = null; }
  if (!response.ok) throw refusal(response.status, answer);
  return answer;
}

/** Returns the answer, or `null` if the gateway has no such object or the name cannot be one. */
export async function find(path) {
  try {
    return await call(path);
  } catch (error) {
    if (error.status === 404 || error.status === 400) return null;
    throw error;
  }
}

/** Returns the results of `work` for all items, in their order; at most `width` run at a time. */
export async function eachOf(items, work, width = 6) {
  const results = new Array(items.length);
  let next = 0;
  const lane = async () => {
    while (next < items.length) {
      const index = next++;
      results[index] = await work(items[index]);
    }
  };
  await Promise.all(Array.from({length: Math.min(width, items.length)}, lane));
  return results;
}

/** Returns status and JSON of an answer whose status is meaningful, such as `/readyz`. */
export async function look(path) {
  const response = await ask(path);
  const text = await response.text();
  try { return {status: response.status, answer: JSON.parse(text)}; } catch { return {status: response.status, answer: null}; }
}

export async function text(path) {
  const response = await ask(path);
  const body = await response.text();
  if (response.ok) return body;
  let answer = null;
  try { answer = JSON.parse(body); } catch { answer = null; }
  throw refusal(response.status, answer);
}

function refusal(status, answer) {
  // The admin API returns {"error":{"code","message"}}. A push returns Getui's form, {"code","msg"}.
  return new Refused(status, answer?.error?.code ?? answer?.code ?? status, answer?.error?.message ?? answer?.msg ?? "");
}

/** Returns a path of escaped segments, which may be user input. */
export const path = (...segments) => "/" + segments.map(encodeURIComponent).join("/");

/** Returns the address of a page of the console. */
export const linkTo = (...segments) => `#${path(...segments)}`;

export const isTaskId = name => /^RAS[SLA]_/.test(name);

/** Whether an answer about a request id names anything. */
export const isKnownRequest = ({messages, tasks, refusals}) => messages.length + tasks.length + refusals.length > 0;
