// Only the parser of replies: sockets, timeouts and TLS are the wrapper's own, since hiredis 0.14 has no TLS.
#include <hiredis/read.h>
