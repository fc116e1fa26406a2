# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The list of a release's files as SPDX 2.3 has it in JSON. Reads the names of files that say the library's licence, and
# lines of sha1sum and of sha256sum for all files; release.sh has looked at the names: none needs quoting.
#
#   awk -v version=.. -v repository=.. -v commit=.. -v created=.. -v archive=.. -v sum=.. -v code=.. -f sbom.awk
#       LICENSED SHA1 SHA256
BEGIN {
  licence = "Apache-2.0 WITH LLVM-exception"
  others = "NOASSERTION"
}
FNR == 1 { ++list }
list == 1 { says_licence[$1] = 1 }
list == 2 { sha1[$2] = $1 }
list == 3 { names[++count] = $2; sha256[$2] = $1 }

# By others are data of tests; NOTICE has their licences. What else says none is under the library's.
function licence_of(name) { return name ~ /^\.\/tests\/data\// && !says_licence[name] ? others : licence }

function package(id, name, version, rest) {
  printf "    {\"SPDXID\": \"SPDXRef-%s\", \"name\": \"%s\", \"versionInfo\": \"%s\",\n%s}", id, name, version, rest
}

END {
  printf "{\n  \"spdxVersion\": \"SPDX-2.3\",\n  \"dataLicense\": \"CC0-1.0\",\n  \"SPDXID\": \"SPDXRef-DOCUMENT\",\n"
  printf "  \"name\": \"tessera-%s\",\n", version
  printf "  \"documentNamespace\": \"%s/spdx/%s-%s\",\n", repository, version, commit
  printf "  \"creationInfo\": {\"created\": \"%s\", ", created
  printf "\"creators\": [\"Tool: tessera-release.sh-%s\"]},\n", version
  printf "  \"documentDescribes\": [\"SPDXRef-tessera\"],\n  \"packages\": [\n"
  package("tessera", "tessera", version, \
    "     \"packageFileName\": \"" archive "\",\n" \
    "     \"downloadLocation\": \"" repository "/releases/download/v" version "/" archive "\",\n" \
    "     \"homepage\": \"" repository "\",\n     \"sourceInfo\": \"commit " commit "\",\n" \
    "     \"checksums\": [{\"algorithm\": \"SHA256\", \"checksumValue\": \"" sum "\"}],\n" \
    "     \"filesAnalyzed\": true, \"packageVerificationCode\": {\"packageVerificationCodeValue\": \"" code "\"},\n" \
    "     \"licenseConcluded\": \"" licence "\", \"licenseDeclared\": \"" licence "\",\n" \
    "     \"licenseInfoFromFiles\": [\"" licence "\", \"NOASSERTION\"],\n" \
    "     \"licenseComments\": \"Data in tests/data are by others: NOTICE has their licences\",\n" \
    "     \"copyrightText\": \"NOASSERTION\", \"supplier\": \"NOASSERTION\", \"primaryPackagePurpose\": \"LIBRARY\"")
  printf ",\n"
  package("cuda", "CUDA Toolkit", "12.8 or later", \
    "     \"comment\": \"The runtime and CCCL, for the .cuh headers alone; nothing of it is in the archive\",\n" \
    "     \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"copyrightText\": \"NOASSERTION\",\n" \
    "     \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"NOASSERTION\"")
  printf "\n  ],\n  \"files\": [\n"
  for (i = 1; i <= count; ++i) {
    name = names[i]
    printf "    {\"SPDXID\": \"SPDXRef-file-%d\", \"fileName\": \"%s\", \"checksums\": [", i, name
    printf "{\"algorithm\": \"SHA1\", \"checksumValue\": \"%s\"}, ", sha1[name]
    printf "{\"algorithm\": \"SHA256\", \"checksumValue\": \"%s\"}],\n", sha256[name]
    printf "     \"licenseConcluded\": \"%s\", ", licence_of(name)
    printf "\"licenseInfoInFiles\": [\"%s\"], ", says_licence[name] ? licence : others
    printf "\"copyrightText\": \"NOASSERTION\"}%s\n", i < count ? "," : ""
  }
  printf "  ],\n  \"relationships\": [\n"
  for (i = 1; i <= count; ++i)
    printf "    {\"spdxElementId\": \"SPDXRef-tessera\", \"relationshipType\": \"CONTAINS\", " \
      "\"relatedSpdxElement\": \"SPDXRef-file-%d\"},\n", i
  printf "    {\"spdxElementId\": \"SPDXRef-cuda\", \"relationshipType\": \"OPTIONAL_DEPENDENCY_OF\", " \
    "\"relatedSpdxElement\": \"SPDXRef-tessera\"},\n"
  printf "    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", " \
    "\"relatedSpdxElement\": \"SPDXRef-tessera\"}\n  ]\n}\n"
}
