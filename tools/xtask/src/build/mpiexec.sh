#!/bin/sh
# Runs a program with MPI, which is a job as all others are: `hearth run` with the option -np that
# scripts use. Options of other launchers are refused with those that take their place.

name=${0##*/}

refuse()
{
    echo "$name: $1" >&2
    exit 2
}

if [ $# = 0 ]; then
    refuse "which program? usage: $name [-n RANKS] [options of \`hearth run\`] PROGRAM [ARGUMENTS]"
fi
part=options
for word do
    shift
    if [ "$word" = : ]; then
        refuse "':' begins another program, and a job has one program: let its ranks differ by what MPI_Comm_rank says"
    fi
    case $part in
    value)
        part=options
        ;;
    options)
        case $word in
        -np)
            word=-n
            part=value
            ;;
        -ppn | -perhost | --ppn | -npernode | --npernode)
            refuse "there is no $word: -N NODES shares the ranks out to so many nodes"
            ;;
        -host | -hosts | -hostlist | -hostfile | --hostfile | -machinefile | --machinefile | -f)
            refuse "there is no $word: --nodes LIST names the nodes, as in --nodes n0,n[2-3]"
            ;;
        -env | -genv | -genvlist | -genvall | -genvnone | -envall | -envlist)
            refuse "there is no $word: --env NAME=VALUE gives ranks a variable, --export NAMES yours"
            ;;
        -wd | -wdir | --wdir)
            refuse "there is no $word: -D DIR names the directory"
            ;;
        -bind-to | --bind-to | -map-by | --map-by | -iface | -launcher)
            refuse "there is no $word: each rank has cores of its own (-c CORES), and the network is one"
            ;;
        -[nNcwxJtoeDd] | --env | --export | --with | --mount | --nodes | --nodelist | --exclude)
            part=value
            ;;
        -*) ;;
        *)
            part=program
            ;;
        esac
        ;;
    esac
    set -- "$@" "$word"
done
exec hearth run "$@"
