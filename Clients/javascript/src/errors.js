import {LIMITS} from "./limits.js";

/**
 * An error of the client. `code` is one of `badConfiguration`, `stateUnreadable`, `stateDamaged`, `stateUnwritable`,
 * `otherTab`, `unreachable`, `refused`, `namesRefused`, `tryLater`, `protocolViolation` and `wrongState`. `closeCode`
 * is the gateway's Close code, if there was one. `resultCode` is the code of a refused call about names, or null.
 */
export class LongwireError extends Error {
  constructor(code, message, details = {}) {
    super(message);
    this.name = "LongwireError";
    this.code = code;
    this.closeCode = details.closeCode === undefined ? null : details.closeCode;
    this.resultCode = details.resultCode === undefined ? null : details.resultCode;
    if (details.cause !== undefined) this.cause = details.cause;
  }
}

/** The error text of a connection that was closed because its peer does not read. */
export const OUTBOX_FULL = `the gateway does not read: more than ${LIMITS.outboxBytes} bytes wait to be sent; `
  + "check the gateway and the proxies before it";

/** Returns the error itself if it is the client's, else a LongwireError with this code. */
export function described(error, code) {
  if (error instanceof LongwireError) return error;
  return new LongwireError(code, String(error && error.message || error), {cause: error});
}
