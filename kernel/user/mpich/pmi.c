/* MPICH's process manager interface, PMI 1, where the kernel has placed the ranks already.
 *
 * Rank and size are the kernel's. Nothing is exchanged: the connection table has all addresses, so
 * that the space of keys holds what one rank says to itself, and where the ranks are.
 *
 * Takes the place of src/pmi/simple/simple_pmi.c. */
#include <mpichconf.h>
#include <mpl.h>
#include "pmi.h"
#include "hearth_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct hearth_identity self;
static int is_begun;

int PMI_Init(int *spawned)
{
    long error = hearth_call_self(&self);
    if (error < 0) {
        fprintf(stderr, "MPI: this is no Hearth node: run the program with `hearth run -n RANKS "
                "./program`\n");
        return PMI_FAIL;
    }
    is_begun = 1;
    *spawned = 0;
    return PMI_SUCCESS;
}

int PMI_Initialized(int *initialized)
{
    *initialized = is_begun;
    return PMI_SUCCESS;
}

int PMI_Finalize(void)
{
    return PMI_SUCCESS;
}

int PMI_Get_size(int *size)
{
    *size = (int) self.size;
    return PMI_SUCCESS;
}

int PMI_Get_rank(int *rank)
{
    *rank = (int) self.rank;
    return PMI_SUCCESS;
}

int PMI_Get_universe_size(int *size)
{
    return PMI_Get_size(size);
}

int PMI_Get_appnum(int *appnum)
{
    *appnum = 0;
    return PMI_SUCCESS;
}

/* All that it would wait for is there when the program starts. */
int PMI_Barrier(void)
{
    return PMI_SUCCESS;
}

int PMI_Abort(int exit_code, const char error_msg[])
{
    fflush(NULL);
    _Exit(exit_code);
}

int PMI_KVS_Get_my_name(char name[], int length)
{
    return MPL_snprintf(name, length, "hearth-%llu", (unsigned long long) self.job) < length ?
        PMI_SUCCESS : PMI_ERR_INVALID_LENGTH;
}

int PMI_KVS_Get_name_length_max(int *length)
{
    *length = 64;
    return PMI_SUCCESS;
}

int PMI_KVS_Get_key_length_max(int *length)
{
    *length = 64;
    return PMI_SUCCESS;
}

int PMI_KVS_Get_value_length_max(int *length)
{
    *length = 1024;
    return PMI_SUCCESS;
}

int PMI_KVS_Put(const char name[], const char key[], const char value[])
{
    return PMI_SUCCESS;
}

int PMI_KVS_Commit(const char name[])
{
    return PMI_SUCCESS;
}

int PMI_KVS_Get(const char name[], const char key[], char value[], int length)
{
    /* Ranks of one node have no memory in common, which is what MPI means by a node. */
    if (strcmp(key, "PMI_process_mapping") == 0
        && MPL_snprintf(value, length, "(vector,(0,%u,1))", self.size) < length)
        return PMI_SUCCESS;
    return PMI_FAIL;
}

int PMI_Publish_name(const char service[], const char port[])
{
    return PMI_FAIL;
}

int PMI_Unpublish_name(const char service[])
{
    return PMI_FAIL;
}

int PMI_Lookup_name(const char service[], char port[])
{
    return PMI_FAIL;
}

int PMI_Spawn_multiple(int count, const char *cmds[], const char **argvs[], const int maxprocs[],
                       const int info_keyval_sizesp[], const PMI_keyval_t * info_keyval_vectors[],
                       int preput_keyval_size, const PMI_keyval_t preput_keyval_vector[],
                       int errors[])
{
    return PMI_FAIL;
}
