#pragma once

#include <string_view>

#include "ahead/graph.h"

namespace ahead {

/// Makes the operator with this printed name; null if there is none such.
using OperatorMaker = const Operator* (*)(std::string_view name);

/// Lets Operator::find() ask `make` for operators whose names begin like this, which are registered
/// when somebody first needs them. `prefix` is a literal.
void make_on_demand(std::string_view prefix, OperatorMaker make);

}  // namespace ahead
