// Plain-C views of system calls that Swift cannot import. Only plain C types here: a glibc header in this file would
// bring back the clash between libevent's and Swift's idea of the same glibc types.
#ifndef LONGWIRE_CSYSTEM_H
#define LONGWIRE_CSYSTEM_H

#include "CSystemCalls.h"
#include "CSystemChecksum.h"
#include "CSystemDescriptors.h"
#include "CSystemMemory.h"
#include "CSystemPoll.h"

#endif
