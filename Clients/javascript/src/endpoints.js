// Gateway addresses: host and port.

export const isEqual = (one, other) => one.host === other.host && one.port === other.port;
export const addressOf = ({host, port}) => host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;

/** Parses host:port, with an IPv6 address in brackets; returns null for anything else. */
export function endpointOf(text) {
  const found = /^(?:\[([0-9A-Za-z.:_-]+)\]|([0-9A-Za-z._-]+)):([0-9]{1,5})$/.exec(text);
  if (!found) return null;
  const port = Number(found[3]);
  return port > 0 && port < 65536 ? {host: found[1] || found[2], port} : null;
}
