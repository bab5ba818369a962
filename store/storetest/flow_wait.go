package storetest

var flowWaitRules []rule
