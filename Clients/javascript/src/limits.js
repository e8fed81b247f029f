// The client's limits; times are in milliseconds. They equal those of the Swift client.

export const LIMITS = {
  /** The maximum numbers of opened and of processed message ids in the state. */
  opened: 256,
  seen: 256,
  /** Opened ids in one Hello; further ones are sent as Feedback. */
  openedPerHello: 32,
  tokens: 16,
  /** Removed tokens that the gateway has not confirmed. */
  removedTokens: 32,
  tokenBytes: 1024,
  topicBytes: 255,
  activityTokens: 8,
  activityBytes: 64,
  /** Streams with a position; gateways use two. */
  streams: 8,
  rejectedPerAck: 32,
  /** Rejections that no Pong has confirmed: two windows of a gateway. */
  rejections: 64,
  reasonCharacters: 128,
  /** Ranges in one position. */
  ranges: 32,
  /** Messages of one session that were received and not processed. A gateway's window is far below. */
  holes: 1024,
  /** Bytes of payloads without a verdict: far above a gateway's window of 64 KiB. */
  handlingBytes: 4194304,
  /** Bytes that were received and wait for the store: far above a gateway's window. */
  inboxBytes: 4194304,
  /** The maximum number of unsent bytes of a connection. Above it the connection is closed. */
  outboxBytes: 1048576,
  connect: 10000,
  welcome: 10000,
  pong: 10000,
  /** The longest delay of a timer while the machine runs: browsers delay those of a hidden tab by up to a minute. */
  timerDelay: 65000,
  backoffFirst: 1000,
  backoffMost: 120000,
  /** The session length that resets the backoff. */
  steady: 60000,
  replaced: 30000,
  /** The longest reconnect delay that a gateway may request. */
  retryWindow: 3600000,
  defaultHeartbeatSeconds: 300,
  leastHeartbeatSeconds: 30,
  mostHeartbeatSeconds: 1800,
  /** Answered heartbeats before a longer one is tried, and before a failed one is retried. */
  answersBeforeLonger: 4,
  answersBeforeRetrial: 32,
  reports: 256,
  /** Messages to the app's server that wait for the gateway: their number, all their bytes, the bytes of one. */
  outgoing: 128,
  outgoingBytes: 524288,
  outgoingPayloadBytes: 16384,
  /** The bytes of all such messages in a mini program: an item of 1 MiB has them in hexadecimal, and the other lists. */
  weChatOutgoingBytes: 393216,
  /** The maximum number of queued requests about names, and the timeout of a result within a session. */
  names: 32,
  namesResult: 30000,
  /** The maximum number of tags, and the maximum bytes of one name and of all names in a request's frame. */
  deviceTags: 200,
  nameBytes: 256,
  namesBytes: 32000,
  /** Bytes of a token of the app's server. */
  serverTokenBytes: 2048,
  firstRetriedCode: 100,
  busyCode: 102,
  busyRetry: 3000,
  fullRetry: 60000,
  /** Networks whose learnt heartbeat is kept, and the bytes of a network's name. */
  networks: 8,
  networkNameBytes: 64,
  /** The silence of the gateway that completes a fetch. */
  fetchQuiet: 1500,
  fetch: 3600000,
  /** The greatest valid sequence: above it a double is not exact. */
  greatestSequence: 9007199254740991,
  /** The greatest time of a gateway that is a time, in milliseconds since 1970. */
  greatestTime: 8640000000000000,
  /** Calls that the store does not accept, kept in memory. */
  keptCalls: 512,
  /** A text attribute of the device, and its locale. */
  attributeBytes: 64, localeBytes: 35,
  clientNameBytes: 64,
  appIdBytes: 64,
};
