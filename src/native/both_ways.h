#pragma once

#include <memory>
#include <string>

#include "ahead/executable.h"
#include "native/group_observer.h"
#include "native/launch/kernel_call.h"

namespace ahead::native {

/// An executable for a group of operators that runs its kernel and ATen on the same arguments,
/// shows both to the observer, and returns what ATen gave.
aot::Executable both_ways(std::string graph, Group group, std::shared_ptr<const KernelCall> kernel,
                          std::shared_ptr<GroupObserver> observer);

}  // namespace ahead::native
