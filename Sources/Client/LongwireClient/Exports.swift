// Types of Wire in the client's API, so that an app needs only `import LongwireClient`. They are listed individually, so that
// the types of frames are not exported.
@_exported public import enum Wire.ApplicationState
@_exported public import struct Wire.DeviceAttributes
@_exported public import struct Wire.DeviceID
@_exported public import struct Wire.Dropped
@_exported public import struct Wire.MessageID
@_exported public import struct Wire.SequenceRange
@_exported public import struct Wire.TaskID
@_exported public import enum Wire.VendorChannel
@_exported public import struct Wire.VendorToken
