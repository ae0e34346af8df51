#pragma once

#include <cstdint>
#include <string>

/// Not by std::filesystem: LibTorch brings one of its own, whose symbols come before the
/// compiler's.
namespace ahead {

/// Makes a folder and those around it. Throws UserError, from this stage and with this advice.
void make_folders(const std::string& folder, const char* stage, const std::string& advice);

/// All of a file; false if it cannot be read.
bool read_file(const std::string& path, std::string& contents);
/// Writes a file under a temporary name first, so that nobody sees a part of it; false if that
/// fails.
bool write_file(const std::string& path, const std::string& contents);
/// A hash of a file's bytes, the same in every process; 0 if it cannot be read.
uint64_t hash_file(const std::string& path);

}  // namespace ahead
