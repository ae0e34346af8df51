#pragma once

/// Everything that a user of Ahead needs, in one include.

#include "ahead/aot.h"
#include "ahead/backend.h"
#include "ahead/backward_autocast.h"
#include "ahead/budget.h"
#include "ahead/checkpoint.h"
#include "ahead/clip.h"
#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "ahead/errors.h"
#include "ahead/executable.h"
#include "ahead/graph.h"
#include "ahead/host_state.h"
#include "ahead/interpret.h"
#include "ahead/optim.h"
#include "ahead/options.h"
#include "ahead/partition.h"
#include "ahead/passes.h"
#include "ahead/trace.h"
#include "ahead/tree.h"
#include "ahead/version.h"
