// The reply parser only. The wrapper implements sockets, timeouts and TLS, because hiredis 0.14 has no TLS.
#include <hiredis/read.h>
