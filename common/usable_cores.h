#ifndef PARLEY_COMMON_USABLE_CORES_H_
#define PARLEY_COMMON_USABLE_CORES_H_

namespace parley {

// Cores that this process may run on, at least one: what Slurm, taskset or a container leaves it,
// where the machine has more.
int UsableCores();

}  // namespace parley

#endif  // PARLEY_COMMON_USABLE_CORES_H_
