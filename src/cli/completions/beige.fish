# Completions of beige for fish: beige completions fish | source
# What there is to propose is asked of the `beige` on PATH.
function __beige_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    set -l before (string match -r -- '^--[^=]*=' "$current")
    set -l part (string replace -r -- '^--[^=]*=' '' "$current")
    for line in (command beige completions answer -- $words "$current" 2>/dev/null)
        switch $line
            case ':files*'
                __fish_complete_path "$part" | string replace -r -- '^' "$before"
            case ':programs*'
                complete -C "$current"
            case '*'
                echo "$before$line"
        end
    end
end
complete -c beige -f -a '(__beige_complete)'
