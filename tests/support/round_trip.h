#pragma once

#include "ahead/graph.h"

/// Checks what must hold for every graph, whoever made it: it is well formed, its text reads back
/// as the same program, and a copy of it is that program too.
void expect_round_trip(const ahead::Graph& graph);
