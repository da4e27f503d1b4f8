# The MPI environment of tests, CI and the examples, for Open MPI 4 (OMPI_MCA_*), Open MPI 5 (PRTE_MCA_*; it ignores
# the older names) and MPICH (which needs none of it). Source it; cmake/EpmoeTest.cmake reads the same lines, so keep
# the form "export NAME=value", one a line, without quotes.

# Containers and CI run as root.
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More ranks than cores is normal in tests.
export OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# By default one or two ranks are bound to one core each, and all their threads with them.
export OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_hwloc_default_binding_policy=none
# Ranks that wait give their core away: a barrier of 4 ranks on 2 cores takes 6 us instead of 8 ms.
export OMPI_MCA_mpi_yield_when_idle=1
export OMP_WAIT_POLICY=passive
