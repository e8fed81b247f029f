// The parts that every platform has. Import `@longwire/client/browser`, `/node` or `/wechat` for a client with
// adapters.

export {LongwireClient} from "./client.js";
export {MemoryStore, makeClock} from "./defaults.js";
export {LongwireError} from "./errors.js";
export {BadFrame, FrameReader, decode, encode, encodeHello} from "./frames.js";
export {bytesOfHex, hex, textOfUTF8, utf8} from "./bytes.js";
export {parseURL} from "./options.js";
export {hmacSHA256, sha256} from "./sha256.js";
