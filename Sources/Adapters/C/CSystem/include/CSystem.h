// Plain C wrappers of system calls that Swift cannot import. This file must not include glibc headers: libevent's and Swift's
// definitions of the same glibc types would conflict.
#ifndef LONGWIRE_CSYSTEM_H
#define LONGWIRE_CSYSTEM_H

#include "CSystemCalls.h"
#include "CSystemChecksum.h"
#include "CSystemDescriptors.h"
#include "CSystemMemory.h"
#include "CSystemPoll.h"

#endif
