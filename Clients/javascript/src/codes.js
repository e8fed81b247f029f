// Protocol numbers that several modules use: the app's states, and Close codes.

export const FOREGROUND = 0, BACKGROUND = 1;
export const GOODBYE = 100, CLOCK_SKEW = 300, UNKNOWN_DEVICE = 301, REPLACED = 400, UNEXPECTED_FRAME = 410,
  MALFORMED = 412, FLOODS = 414;
