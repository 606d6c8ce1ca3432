# Completions of beige for bash: eval "$(beige completions bash)"
# What there is to propose is asked of the `beige` on PATH.
_beige() {
    local word told before= current=${COMP_WORDS[COMP_CWORD]}
    # bash parts `--flag=value` into three words.
    [[ $current == = ]] && current=
    if [[ $current == --*=* ]]; then
        before=${current%%=*}= current=${current#*=}
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r word told; do
        case $word in
        :files)
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do
                COMPREPLY+=("$before$word")
            done < <(compgen -f -- "$current")
            ;;
        :programs)
            while IFS= read -r word; do
                COMPREPLY+=("$word")
            done < <(compgen -c -- "$current")
            ;;
        "$current"*) COMPREPLY+=("$before$word") ;;
        esac
    done < <(command beige completions answer -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _beige beige
