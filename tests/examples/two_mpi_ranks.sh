#!/usr/bin/env bash
# two_mpi_ranks.sh PROGRAM: starts it twice, with the variables that Open MPI's mpirun sets for two ranks of one host.
set -euo pipefail
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE="test-$$"
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 "$1" &
other=$!
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 "$1"
wait "$other"
