#pragma once

#include <functional>
#include <memory>

#include "ahead/backend_traits.h"
#include "ahead/executable.h"
#include "native/group_observer.h"

namespace ahead::native {

/// The native backend: operators of a graph that share loops become kernels, which the system's
/// compiler compiles; everything else is left to ATen, and so are groups of operators whose kernel
/// cannot be had.
aot::Executable compile(const aot::CompileRequest& request);

/// The same to eager's bits: kernels compute only what has_exact_rule(), products stay as they are.
aot::Executable compile_strictly(const aot::CompileRequest& request);

/// As compile(), but each group is computed by its kernel and by ATen: see GroupObserver.
aot::Executable compile_for(const std::shared_ptr<GroupObserver>& observer,
                            const aot::CompileRequest& request);

/// Begins to compile the kernels of a graph in the background: compile() will find them, or wait
/// for those that are not ready. See BackendTraits::begin.
void begin(std::function<Graph()> make);

/// What it says of itself.
BackendTraits traits();

}  // namespace ahead::native
