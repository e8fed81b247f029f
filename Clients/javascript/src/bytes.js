// Bytes, hexadecimal digits and UTF-8. Mini programs have no TextEncoder and no TextDecoder, so both directions exist
// in plain JavaScript. The native decoder is used where it exists, because it is faster.

const DIGITS = [];
for (let byte = 0; byte < 256; byte += 1) DIGITS.push((byte < 16 ? "0" : "") + byte.toString(16));

/** Returns the lower-case hexadecimal digits of bytes. */
export function hex(bytes) {
  let text = "";
  for (let index = 0; index < bytes.length; index += 1) text += DIGITS[bytes[index]];
  return text;
}

/** Returns the bytes of hexadecimal digits, or null for any other text. */
export function bytesOfHex(text) {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(text)) return null;
  const bytes = new Uint8Array(text.length / 2);
  for (let index = 0; index < bytes.length; index += 1) bytes[index] = parseInt(text.substr(index * 2, 2), 16);
  return bytes;
}

/** Returns the joined bytes of several arrays. */
export function concat(...parts) {
  const joined = new Uint8Array(parts.reduce((count, part) => count + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    joined.set(part, offset);
    offset += part.length;
  }
  return joined;
}

/** Returns the UTF-8 of a text. A lone surrogate becomes U+FFFD. */
export function utf8(text) {
  const bytes = [];
  for (const character of text) {
    let point = character.codePointAt(0);
    if (point >= 0xd800 && point < 0xe000) point = 0xfffd;
    if (point < 0x80) bytes.push(point);
    else if (point < 0x800) bytes.push(0xc0 | point >> 6, 0x80 | point & 63);
    else if (point < 0x10000) bytes.push(0xe0 | point >> 12, 0x80 | point >> 6 & 63, 0x80 | point & 63);
    else bytes.push(0xf0 | point >> 18, 0x80 | point >> 12 & 63, 0x80 | point >> 6 & 63, 0x80 | point & 63);
  }
  return Uint8Array.from(bytes);
}

/** Returns the text of well-formed UTF-8 (Unicode, table 3-7), or null for any other bytes. */
export function plainTextOfUTF8(bytes) {
  const parts = [];
  let text = "", offset = 0;
  while (offset < bytes.length) {
    const lead = bytes[offset];
    offset += 1;
    if (lead < 0x80) {
      text += String.fromCharCode(lead);
    } else {
      let least = 0x80, most = 0xbf, followers, point;
      if (lead >= 0xc2 && lead <= 0xdf) [followers, point] = [1, lead & 31];
      else if (lead >= 0xe0 && lead <= 0xef) [followers, point] = [2, lead & 15];
      else if (lead >= 0xf0 && lead <= 0xf4) [followers, point] = [3, lead & 7];
      else return null;
      if (lead === 0xe0) least = 0xa0;
      if (lead === 0xed) most = 0x9f;
      if (lead === 0xf0) least = 0x90;
      if (lead === 0xf4) most = 0x8f;
      for (; followers > 0; followers -= 1) {
        const byte = bytes[offset];
        if (byte === undefined || byte < least || byte > most) return null;
        point = point << 6 | byte & 63;
        [least, most] = [0x80, 0xbf];
        offset += 1;
      }
      text += String.fromCodePoint(point);
    }
    if (text.length > 4096) {
      parts.push(text);
      text = "";
    }
  }
  parts.push(text);
  return parts.join("");
}

let native = null;
try {
  native = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});
} catch {
  native = null;
}

/** Returns the text of well-formed UTF-8, or null for any other bytes. */
export function textOfUTF8(bytes) {
  if (bytes.length === 0) return "";
  if (!native) return plainTextOfUTF8(bytes);
  try {
    return native.decode(bytes);
  } catch {
    return null;
  }
}
