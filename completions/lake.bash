# Made by lake.cli.completion; do not edit.
_lake() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local verb= word words=
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$word" in
            ingest|scan|snapshots|compact|expire|replay|demo) verb=$word; break ;;
        esac
    done
    case "$verb $previous" in
        " --catalog-type") words="sql hadoop" ;;
        " --engine") words="auto spark inline" ;;
        " --catalog"|" --warehouse"|" --master"|" --remote"|" --spark-conf") return ;;
        "ingest --format") words="parquet csv json arrow orc avro" ;;
        "ingest --distribution") words="none hash range" ;;
        "ingest --deletes") words="position equality copy-on-write" ;;
        "ingest --changes-mode") words="upsert retract" ;;
        "ingest --from-table"|"ingest --partition-by"|"ingest --sort-by"|"ingest --property"|"ingest --overwrite-where"|"ingest --target-size"|"ingest --run-id"|"ingest --key"|"ingest --order-by"|"ingest --changes-column"|"ingest --discard"|"ingest --rejects"|"ingest --branch") return ;;
        "scan --output-format") words="parquet csv json arrow" ;;
        "scan --snapshot"|"scan --from-snapshot"|"scan --to-snapshot"|"scan --key"|"scan --where"|"scan --select"|"scan --limit"|"scan --split-size"|"scan --split-lookback"|"scan --split-open-cost"|"scan --output"|"scan --branch") return ;;
        "snapshots --branch") return ;;
        "compact --strategy") words="binpack sort zorder" ;;
        "compact --by"|"compact --where"|"compact --target-size"|"compact --min-size"|"compact --max-size"|"compact --min-input-files"|"compact --max-group-size"|"compact --max-group-files"|"compact --delete-file-threshold"|"compact --delete-ratio"|"compact --max-files"|"compact --job-order"|"compact --max-commits"|"compact --spec-id"|"compact --option"|"compact --branch"|"compact --wait") return ;;
        "expire --older-than"|"expire --retain-last"|"expire --snapshot"|"expire --keep-checkpoints"|"expire --branch"|"expire --wait") return ;;
        "replay --checkpoint"|"replay --job"|"replay --completed"|"replay --quiet-time"|"replay --branch") return ;;
    esac
    if [[ -z "$words" ]]; then
        case "$verb" in
            "") words="ingest scan snapshots compact expire replay demo --catalog --warehouse --catalog-type --engine --master --remote --spark-conf --json --quiet -q --verbose -v --version --help -h" ;;
            ingest) words="--from-table --format --create --partition-by --sort-by --property --evolve --overwrite --overwrite-where --allow-empty --replace-partitions --distribution --target-size --run-id --upsert --key --deletes --order-by --repair-duplicates --changes-column --changes-mode --stage --discard --rejects --branch --dry-run --help -h" ;;
            scan) words="--snapshot --from-snapshot --inclusive --to-snapshot --changes --key --where --select --limit --ignore-case --plan --split-size --split-lookback --split-open-cost --output --output-format --replace --branch --help -h" ;;
            snapshots) words="--all --branch --help -h" ;;
            compact) words="--strategy --by --where --target-size --min-size --max-size --min-input-files --max-group-size --max-group-files --delete-file-threshold --delete-ratio --rewrite-all --max-files --job-order --partial-progress --max-commits --spec-id --verify --no-starting-sequence-number --remove-dangling-deletes --option --branch --wait --dry-run --help -h" ;;
            expire) words="--older-than --retain-last --snapshot --keep-files --clean-metadata --keep-checkpoints --unsafe-retention --branch --wait --dry-run --help -h" ;;
            replay) words="--checkpoint --job --completed --replace-partitions --quiet-time --assume-uncommitted --status --branch --dry-run --help -h" ;;
            demo) words="--help -h" ;;
        esac
        [[ -n "$verb" && "$current" != -* ]] && return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _lake lake
