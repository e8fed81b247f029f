// Types of Wire that stand in the client's API: an app can name and use them with `import LongwireClient` alone. One by
// one, so that the names of frames do not come along.
@_exported public import enum Wire.ApplicationState
@_exported public import struct Wire.DeviceID
@_exported public import struct Wire.Dropped
@_exported public import struct Wire.MessageID
@_exported public import struct Wire.SequenceRange
@_exported public import struct Wire.TaskID
@_exported public import enum Wire.VendorChannel
@_exported public import struct Wire.VendorToken
