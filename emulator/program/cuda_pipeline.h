// Asynchronous copies from device memory to shared memory, of 16 bytes (CUDA C++ Programming Guide, "Pipeline primitives
// interface"). A copy lands when its thread waits for it, the latest time that CUDA permits.
#pragma once

#include <cstddef>
#include <source_location>

/// Begins a copy of 16 bytes or, if zfill is 16, their filling with zeros. Another size is a fault.
void __pipeline_memcpy_async(void* shared, const void* global, std::size_t size, std::size_t zfill = 0,
                             std::source_location where = std::source_location::current());
/// Makes a group of the copies that the thread has begun since the last call.
void __pipeline_commit();
/// Waits for all groups of the thread but the last `pending`.
void __pipeline_wait_prior(std::size_t pending);
