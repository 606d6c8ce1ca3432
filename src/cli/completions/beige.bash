# Completions of beige for bash: eval "$(beige completions bash)"
# What there is to propose is asked of the `beige` on PATH.
_beige() {
    local word told before= colons= glue= current
    local -a words=()
    # bash parts `cli:a:b` at its colons.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ ${#words[@]} -gt 0 && ( -n $glue || $word == :* ) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        glue=
        [[ $word == *: ]] && glue=1
    done
    current=${words[${#words[@]} - 1]}
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
        "$current"*)
            # What stands before the last colon is a word of its own to bash.
            [[ $current == *:* && $COMP_WORDBREAKS == *:* ]] && colons=${current%:*}:
            COMPREPLY+=("$before${word#"$colons"}")
            ;;
        esac
    done < <(command beige completions answer -- "${words[@]}" 2>/dev/null)
}
complete -F _beige beige
