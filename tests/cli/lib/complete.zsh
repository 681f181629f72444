# complete.zsh FOLDER LINE...: what zsh offers at the end of each LINE with FOLDER's completion functions; a line of
# words for each. An interactive zsh on a terminal of its own completes; compadd writes down what it is given.
zmodload zsh/zpty
out=$(mktemp)
trap "rm -f $out" EXIT
setup=$(mktemp)
cat > $setup <<END
fpath=($1 \$fpath)
autoload -Uz compinit
compinit -D -u
compadd() {
	if [[ " \${@[1,(i)(-|--)]} " != *" -"(O|A|D)" "* ]]; then
		local -a hits
		builtin compadd -A hits "\$@"
		print -rn -- "\$hits " >> $out
	fi
	builtin compadd "\$@"
}
then_a_line() { _warpwright; print >> $out }
compdef then_a_line warpwright
bindkey '^I' complete-word
setopt no_list_beep
PS1=
END
zpty z zsh -f -i
zpty -w z "source $setup; print ready > $out"
while [[ ! -s $out ]]; do sleep 0.02; done
: > $out
n=0
for line in "${@[2,-1]}"; do
	zpty -w -n z "$line"$'\t'
	(( n++ ))
	for i in {1..250}; do [[ $(grep -c '' $out) -ge $n ]] && break; sleep 0.02; done
	zpty -w -n z $'\x15'
done
cat $out
rm -f $setup
zpty -d z
