#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "ahead/export.h"

namespace ahead {

/// Base of everything Ahead throws. The message reads
/// `[stage] subject: what is wrong. What to do.`
class AHEAD_API Error : public c10::Error {
 public:
  Error(std::string_view stage, const std::string& message);
};

/// The caller did something that cannot work: wrong arguments, malformed text, a broken contract.
class AHEAD_API UserError : public Error {
 public:
  using Error::Error;
};

/// A valid program that Ahead cannot capture; eager would run it.
class AHEAD_API Unsupported : public Error {
 public:
  using Error::Error;
};

/// The program reads the values of a traced tensor, which do not exist while tracing.
class AHEAD_API DataDependent : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

/// Ahead broke one of its own invariants. The message carries what is needed to reproduce it.
class AHEAD_API InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace ahead
