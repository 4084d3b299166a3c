#ifndef PARLEY_COMMON_SEED_H_
#define PARLEY_COMMON_SEED_H_

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace parley {

// A seed for one purpose, derived from the job's seed: generators are never carried, each is seeded
// from what it is for ("dropout", data epoch, step, microbatch; "initial", and the parameter's name
// in `purpose`). The same on every machine.
uint64_t DeriveSeed(uint64_t seed, std::string_view purpose,
                    std::initializer_list<uint64_t> numbers = {});

// A random number of 64 bits from the operating system; never 0. A process draws one as its
// incarnation.
uint64_t RandomIncarnation();

}  // namespace parley

#endif  // PARLEY_COMMON_SEED_H_
