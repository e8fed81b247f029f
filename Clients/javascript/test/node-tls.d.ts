// The one type of Node that the declarations use, for a compiler without the types of Node.

declare module "node:tls" {
  interface ConnectionOptions {
    ca?: string | Uint8Array | (string | Uint8Array)[];
    cert?: string | Uint8Array;
    key?: string | Uint8Array;
  }
}
