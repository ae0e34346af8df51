#pragma once

#include <string>

#include "ahead/export.h"

/// Operators that do something besides computing their results: they print, count, send or wait.
/// Such a call happens in every call of a compiled function, once, in the order of the program.
namespace ahead {

/// Says that an operator has an effect, by its name: `my::log`, or `my::log.overload`; without an
/// overload, all overloads. It is recorded as one call, whatever its kernel calls, and no pass
/// drops, merges, moves or repeats it. Operators that return nothing, or that write to an argument,
/// are effects in any case, and so are custom operators without a tag that says otherwise. Throws
/// UserError for an unknown name, and for an operator whose results are views of its arguments.
/// Declare operators before functions that call them are compiled: programs that exist stay as they
/// are until Compiled::reset(), of which a warning tells. Threads may declare at the same time.
AHEAD_API void declare_effect(const std::string& name);

/// Says that a custom operator has no effect, of which nothing else tells: calls whose results
/// nobody uses are dropped, equal ones made once, and results computed again rather than saved.
/// Throws UserError for an unknown name, and for an operator that returns nothing or writes to an
/// argument. It takes back declare_effect(), and the other way round.
AHEAD_API void declare_pure(const std::string& name);

}  // namespace ahead
