#compdef beige
# Completions of beige for zsh: source <(beige completions zsh), after compinit;
# or as a file _beige in a folder of $fpath.
# What there is to propose is asked of the `beige` on PATH.
_beige() {
    local line word
    local -a names shown
    [[ ${words[CURRENT]} == --*=* ]] && compset -P '*='
    for line in "${(@f)$(command beige completions answer -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        word=${line%%$'\t'*}
        case $word in
        '') ;;
        :files) _files ;;
        :programs) _command_names -e ;;
        *)
            names+=("$word")
            shown+=("${line/$'\t'/  -- }")
            ;;
        esac
    done
    (( $#names )) && compadd -l -d shown -a -- names
}
if [[ $funcstack[1] == _beige ]]; then
    _beige "$@"
else
    compdef _beige beige
fi
